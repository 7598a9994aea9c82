"""Steps of the restart check, on which ranks and supervisor agree."""

SAVED_STEP = 2
"""The first generation takes a snapshot of this step, and the next one starts from it."""
COMPARED_STEPS = (3, 4)
"""Steps that both generations take and whose states are compared. The first generation ends after the last of them."""
PROGRAM_STOPS = (7, 19, 47, 113, 277)
"""Steps of a program at which its generations end in turn, until one has continued from a checkpoint of the program.

They grow because the interval between its checkpoints is unknown. Each generation ends within its last step, so the
program cannot have saved that step.
"""
