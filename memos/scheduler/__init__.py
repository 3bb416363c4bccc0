"""What happens to memories after they are stored: indexes follow, corrections apply, erasures finish."""
