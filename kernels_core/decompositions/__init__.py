"""Operations of PyTorch in terms of operations that have rules, where PyTorch has no such decomposition itself."""
