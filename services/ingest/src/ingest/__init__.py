"""Lines of text to words: the first service of the word count."""
