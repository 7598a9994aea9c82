"""The edge: HTTP routes, wire models, and the clients that speak to them."""
