"""The command line: parse, call a room, print. Commands live one a file and load when used."""
