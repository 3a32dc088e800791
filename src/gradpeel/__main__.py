"""`python -m gradpeel`: the command line, where the `gradpeel` script is not on the path."""

from gradpeel.cli import main

main()
