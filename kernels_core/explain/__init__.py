"""What a check would do, read off its program: what is granted, and what it will cost."""
