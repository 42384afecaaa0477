"""The Spark shell: the only package that knows Spark. It moves rows and runs what the core decides."""
