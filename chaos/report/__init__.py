"""A run as one HTML file: the verdict, what was broken when, what the cluster and its clients did meanwhile.

`recorded` reads the files of a run; `client_series`, `cluster_series` and `anomalies` reduce them to what a
page can draw, bounded in size however long the run was; `page` writes one file that needs no network.
"""
