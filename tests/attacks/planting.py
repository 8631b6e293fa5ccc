"""What the code of hostile commits is made of: the program they begin with."""

PLANTING = """
import json, os, shutil, sys
OUT = os.path.dirname(os.environ["TIDEMARK_RUN_JSON"])
TOP = os.path.dirname(OUT)
def plant(place, how):
    for clear in (lambda: os.rename(place, place + ".away"), lambda: shutil.rmtree(place), lambda: os.unlink(place)):
        try:
            clear()
        except OSError:
            pass
    try:
        how(place)
    except OSError as refusal:
        print(refusal, file=sys.stderr)
"""
"""OUT and TOP are the directories of the run's results and of the run; `plant` clears a place by all means and puts
something else there."""
