"""Tables as people keep them: files with named columns, text among the numbers, prices in a file of their own."""
