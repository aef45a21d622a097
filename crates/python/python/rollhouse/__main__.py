"""``python -m rollhouse``: the ``rollhouse`` command."""

from rollhouse_command import main

if __name__ == "__main__":
    main()
