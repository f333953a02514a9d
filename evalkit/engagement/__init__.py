"""Arms on running servers: is the schedule in force, do builds agree, what does it buy?"""
