"""Manages deployments that outlive the shell: started in the background, found by name, stopped without loss.

Reading order: `config`, `registry`, `server`, `daemon`, `systemd`. A deployment is a folder under the user's
state directory: its configuration (`plan.json`), its endpoint while it runs (`running.json`), its log, API
keys and queue. Deploying again under the same name continues with the same queue and history.
"""
