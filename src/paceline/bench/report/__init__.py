"""Results for people: what is said (content), and how it is shown (terminal, Markdown, one HTML file)."""
