"""From a result on disk to the API, however long that is away."""
