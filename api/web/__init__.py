"""The HTTP layer of the server: routes, presenters, problem details and the request guard."""
