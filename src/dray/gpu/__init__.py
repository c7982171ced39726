"""What is known of GPUs: tables of drivers, toolkits and builds, and what follows from them before a run starts."""
