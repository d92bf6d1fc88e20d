"""The real client. Arguments: `up URL FILE…` prints xet hashes; `down URL HASH=SIZE=FILE…`."""

from __future__ import annotations

import json
import sys

import hf_xet

if __name__ == "__main__":
    verb, url, *names = sys.argv[1:]
    session = hf_xet.XetSession()
    access = {"endpoint": url, "token": "token", "token_expiry_unix_secs": 9999999999}
    if verb == "up":
        with session.new_upload_commit(**access) as commit:
            files = [commit.start_upload_file(name) for name in names]
        print(json.dumps([file.result().xet_info.hash for file in files]))
    else:
        with session.new_file_download_group(**access) as group:
            for name in names:
                hash, size, path = name.split("=", 2)
                group.start_download_file(hf_xet.XetFileInfo(hash, int(size)), path)
