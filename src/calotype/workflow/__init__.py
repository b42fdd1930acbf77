"""Node graphs: what nodes declare; graphs checked, run, kept, described and converted. nodes/ are ours.

Nothing here loads torch when it is imported: a server describes and checks graphs in a process without it.
"""
