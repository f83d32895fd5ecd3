"""Beyond the beam: any nodes of a window's tree, sampling, residual estimates and refinement."""
