"""One router per resource: parse, authorise, call one service function, return."""
