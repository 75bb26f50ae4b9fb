"""`python -m devstack`."""

from devstack.cli import main

if __name__ == "__main__":
    main()
