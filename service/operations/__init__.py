"""Use cases of the control plane. The routes of the API call them."""
