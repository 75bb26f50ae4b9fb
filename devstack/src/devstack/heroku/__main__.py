"""`python -m devstack.heroku`: what the program `heroku` of the stand-in runs."""

from devstack.heroku.command_line import main

if __name__ == "__main__":
    main()
