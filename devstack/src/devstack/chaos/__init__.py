"""`make chaos`: the word count on real servers while everything that can break does."""
