"""Programs rewritten before they are bounded: derivatives that PyTorch writes less directly than a kernel would."""
