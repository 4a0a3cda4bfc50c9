"""What training will take, before it is paid for: work counted, and divided by measured rates."""
