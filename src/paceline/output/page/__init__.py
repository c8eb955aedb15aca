"""A report page (headline, sentences, tables, charts) and its writers: terminal, Markdown, HTML."""
