"""One module for each noun of the API: requests and their answers, used by both clients."""
