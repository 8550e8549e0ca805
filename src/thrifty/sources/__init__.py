"""Ready sources of features: tables of databases, services of the web, and values or functions by column."""
