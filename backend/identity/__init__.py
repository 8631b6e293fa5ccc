"""Who vouches for people: an OpenID provider, or GitHub."""
