"""The table reader: files, data frames and arrays as numbers, and numbers as the data frame of the fit again."""
