"""The MCP server: tools with which agents use regroup, over the public client."""
