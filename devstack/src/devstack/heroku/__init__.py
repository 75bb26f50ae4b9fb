"""A stand-in for Heroku's Kafka on this machine: the same doors, the same rights, no account.

A real broker that lets in whoever has a certificate, grants an app what Heroku grants and nothing
more, and a program `heroku` that answers the commands which make topics and groups. What differs:
one broker instead of three or more (so one replica of everything), and everything is there at once.
"""
