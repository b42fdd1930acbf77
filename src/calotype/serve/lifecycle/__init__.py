"""Deployments that outlive the shell: started in the background, found by name, stopped with nothing lost.

Reading order: `plan`, `places`, `server`, `deploying`, `systemd`. A deployment is a folder under the user's
state directory: what it serves (`plan.json`), where it can be reached while it runs (`running.json`), its
log, keys and queue. Deploying again under the same name goes on with the same queue and history.
"""
