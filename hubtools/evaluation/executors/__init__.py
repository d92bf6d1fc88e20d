"""Where cells are computed: in this process, on a Ray cluster, or by SLURM arrays."""
