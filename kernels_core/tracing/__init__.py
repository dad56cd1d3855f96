"""From a PyTorch function to a program, and to the programs of its derivatives."""
