"""What is measured of models: how good their pictures are. Stands above engine and data, knows no verb."""
