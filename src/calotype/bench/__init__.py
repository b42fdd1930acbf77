"""What is measured of models: how good their pictures are, how fast beside what others measured.

Stands above engine and data, knows no verb.
"""
