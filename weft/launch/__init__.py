"""Start a script in several processes: `python -m weft.launch -n 4 train.py arguments`.

The launcher starts the processes of this host and, by ssh or by launchers that are started there, those of others. It
is their coordinator (`weft.base.joining`), passes on what they write line by line, and ends or restarts all of them if
one fails. It runs before the rest of Weft is imported, and does not need it.
"""

from weft.launch.main import main as main
