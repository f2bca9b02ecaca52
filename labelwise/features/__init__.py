"""What methods see of a text: words, and what is made of them."""
