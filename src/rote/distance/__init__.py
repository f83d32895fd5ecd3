"""Edit distances over tokens as viability rules: which partial continuations can still end within the budget."""
