"""One file for each kind of data. A kind is recognised by its methods: its library is never imported."""
