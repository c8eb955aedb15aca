"""What commands print: tables, progress of transfers, languages, widths of text."""
