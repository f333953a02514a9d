"""The small model's text: seeded needles, haystacks and questions, and their tokenizer."""
