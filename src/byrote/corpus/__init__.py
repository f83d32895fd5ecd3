"""From files to windows: documents with content hashes, and the windows cut from them."""
