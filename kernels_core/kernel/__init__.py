"""The kernel under test: what people wrote, how it is called, and what it means that it raised."""
