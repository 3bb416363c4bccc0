"""Programs that use memory through MCP or hooks: their configuration files, and how it is put there and taken out."""
