from pacefno.cli import main

main()
