"""Words to counts in windows: the second service of the word count."""
