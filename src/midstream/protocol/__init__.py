"""What is decided between epochs, from committed facts only: watermarks, programs, manifests."""
