"""What is known of GPUs: tables of drivers, toolkits and builds, what follows from them before a run starts, and how a verdict is told."""
