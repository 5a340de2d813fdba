"""What a user takes away: the files that launch a layout without this program."""
